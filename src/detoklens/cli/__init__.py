"""The command line: composes the other rooms, imports them only inside commands."""
