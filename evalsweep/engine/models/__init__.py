"""Who answers: models of transformers and of servers, and the text that they generate."""
