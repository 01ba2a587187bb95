"""From the cluster to one typed snapshot of a job."""
