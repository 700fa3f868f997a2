"""Safe writes inside your own FastAPI routes.

Roof. A dependency that turns an Idempotency-Key header into a request identity, and a function that
turns an outcome into an answer or a problem document. Start with glue.py.
"""
