"""Other libraries' tables beside ours, each in a process of its own."""
