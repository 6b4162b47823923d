"""Generated conversations: a simulated life as an event log, told in dialogue, asked by query.

`events` holds what happens and the queries; `life` draws one life; `questions` asks; `render` puts
events into words; `filler` talks about everything else; `solve` reads the text back into events, an
independent proof that the text says what the log says; `load` puts it together.
"""
