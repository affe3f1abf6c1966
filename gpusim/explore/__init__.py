"""The explorer: questions that are asked in a browser, answered by the same code as the command line.

In: the words of a form (a query string). Out: an answer, or one sentence; as a page from the user's own machine (``app``),
or as a static site with answers computed beforehand (``export``). ``answers`` knows no browser, ``pages`` no server.
"""
