"""The explorer: a study as a folder of static files with a page that computes in the browser, and a local server."""
