"""Messages for users: errors, reasons of conditions, remedies."""
