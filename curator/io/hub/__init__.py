"""Datasets of the Hugging Face hub: read by configuration and split, written with their card."""
