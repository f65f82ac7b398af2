"""The project that ``holdfast init`` writes: the files of this folder, as they stand."""
