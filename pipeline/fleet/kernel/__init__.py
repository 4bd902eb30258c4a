"""The compiled loop over changes of residency, and the flat tables it works on."""
