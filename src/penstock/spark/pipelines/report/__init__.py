"""The report: queries.py asks rollups, sections.py lays out tables, page.py writes the page."""
