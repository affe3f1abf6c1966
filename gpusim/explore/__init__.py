"""Explorer in the browser: forms whose requests the command line's code answers.

In: the fields of a form (a query string). Out: an answer, or an error of one sentence. It is a page served by the user's
machine (``app``), or a static site with answers computed in advance (``export``). ``answers`` is independent of the browser,
``pages`` of the server.
"""
