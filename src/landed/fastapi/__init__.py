"""Safe writes inside your own FastAPI routes.

Roof. A dependency that turns an Idempotency-Key header into a request identity, and a function that
turns an outcome into an answer or a problem document. Start with glue.py.
"""

from landed.fastapi.body import read_json, strict_body
from landed.fastapi.documents import problem_documents
from landed.fastapi.glue import CallerOf, OpenLog, SafeWrites, caller_header
from landed.fastapi.key import BadKeyError, RequestKey
from landed.fastapi.problems import TABLE, Problem, ProblemError, problem, refuse

__all__ = [
    "TABLE",
    "BadKeyError",
    "CallerOf",
    "OpenLog",
    "Problem",
    "ProblemError",
    "RequestKey",
    "SafeWrites",
    "caller_header",
    "problem",
    "problem_documents",
    "read_json",
    "refuse",
    "strict_body",
]
