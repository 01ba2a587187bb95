"""What every room of the operator needs: its settings, and its own metrics."""
