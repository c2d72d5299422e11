"""Actions: what the agent does about a verdict. Plans are pure values; one executor runs them; a journal has them."""
