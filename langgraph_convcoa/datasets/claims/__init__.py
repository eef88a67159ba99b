"""Labelled claims with evidence. Language models wrote them one by one for this library and labelled them twice, blind."""
