"""One module per figure: `draw(figure, content, theme)` and `caption(content)`."""
