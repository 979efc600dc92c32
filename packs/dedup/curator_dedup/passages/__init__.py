"""Lines and passages that occur again are cut out."""
