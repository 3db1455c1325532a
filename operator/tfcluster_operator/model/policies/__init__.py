"""The life of a cluster as small policies, one question each: values in, a decision with its reason out."""
