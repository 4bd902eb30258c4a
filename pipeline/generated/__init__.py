"""Files that are written from the schemas: JSON Schema, AsyncAPI, examples and reference pages."""
