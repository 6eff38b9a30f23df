"""A Summary as text, Markdown, JSON and pictures; pure functions, nothing is written here."""
