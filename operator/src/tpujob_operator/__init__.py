"""Turns TpuTrainingJob resources into JobSets on GKE TPU node pools."""
