"""The arithmetic of a forward pass: one interface, a torch and a native backend."""
