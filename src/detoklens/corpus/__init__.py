"""What does text look like? Documents, token ids, and the counts of tokens and bigrams; knows no model's weights."""
