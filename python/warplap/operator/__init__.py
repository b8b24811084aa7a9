"""What every operator shares: registration with torch, eager and compiled calls, autocast, torch's fallback, checks."""
