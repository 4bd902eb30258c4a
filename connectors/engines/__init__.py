"""What is true of single engines, one file of data for each, and what is built from all of them together.

A new engine is a file that makes a `description.Engine`, and a name in `catalogue.ENGINES`. The decoders, the
scanner, media, the scraper and the traits on the records follow from it.
"""
