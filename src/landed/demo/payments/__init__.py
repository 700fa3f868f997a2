"""The handling wing's part of the demo: a webhook, an invoice, a charge, a mail, and a page.

Three processes: ``neighbours`` (the shop, the bank and the mail house, which are not ours),
``service`` (the boundary and the page) and ``landed work`` on ``billing``. Start with billing.py.
"""
