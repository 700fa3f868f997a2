"""What every room that talks to PostgreSQL shares: addresses, failures, migrations, start checks.

Floor 2, below engines and projections. With their PostgreSQL modules it is the only one that imports
the driver, and nothing imports it before a ``postgresql://`` URL is used. Start with dsn.py.
"""
