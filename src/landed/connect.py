"""``connect``: one URL in, one ``Log`` out. Rooms are imported only when their scheme is used."""

from __future__ import annotations
