"""Getting texts from where they are published: Common Crawl, Wikipedia, arXiv."""
