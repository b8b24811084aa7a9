"""Python callables as candidates: run, proved and raced in processes of their own."""
