"""Data sets, measures and reports. The library never imports this package."""
