"""The columns of `text.signals`, in families that are measured together."""
