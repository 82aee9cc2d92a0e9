"""From a delegate to plans: the typed graph, fusion passes, the resize engine, memory. No GPU."""
