"""The model: presets, building with a bit-exact initialisation, export as a `from_pretrained` folder."""
