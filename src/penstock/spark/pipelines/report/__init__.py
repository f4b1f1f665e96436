"""The report: queries.py asks Spark, sections.py lays out tables, page.py writes them as HTML."""
