-- Facts are found by any part of a word in scripts without spaces, and by emoji. How a text is split stands in
-- holdfast.model.words: whoever applies this lends the function to its connection.
UPDATE facts SET words = holdfast_words(entity, attribute, value);
