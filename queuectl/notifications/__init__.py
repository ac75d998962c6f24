"""Messages about decisions to webhooks, Slack and mail: reads the ledger, after each commit."""
