# Loaded into each Ruby of a soak: SIGURG, which nobody else sends there, has it collect all its garbage.
Signal.trap('URG') { GC.start }
