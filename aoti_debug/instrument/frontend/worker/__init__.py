"""The process that runs Inductor: no other code does. Begin with `lower`."""
