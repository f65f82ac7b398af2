"""How things look: from what the service returns to what a terminal shows. No queries, no printing."""
