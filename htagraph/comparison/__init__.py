"""Two runs compared: their steps, what of them changed beyond noise, and limits for both."""
