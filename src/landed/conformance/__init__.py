"""What any engine must do, as sentences.

Tower. Each obligation is a plain async function that takes an engine; pytest runs them, the
simulator runs them, and a command runs them against a database of your own.
"""
