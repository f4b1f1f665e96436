"""The pipeline: history goes to the lake, and reports and replays are made of it.

    store --export--> lake (raw) --clean--> one row per attempt, job, flow --reports--> page

One small file per dataset, each a plain function from frames to a frame. Importing this imports no
Spark.
"""
