"""The data source `penstock`: tables of a store as DataFrames, in batch and as streams.

data_source.py is what Spark registers; readers.py plans the partitions on the driver and reads them
on executors.
"""
