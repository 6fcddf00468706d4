-- Whether a row refers to a long text is looked up when unused ones are deleted. Few rows have one.

CREATE INDEX "sessions_by_toolsJsonBlob" ON "sessions" ("toolsJsonBlob") WHERE "toolsJsonBlob" IS NOT NULL;
CREATE INDEX "iterations_by_testOutputBlob" ON "iterations" ("testOutputBlob") WHERE "testOutputBlob" IS NOT NULL;
CREATE INDEX "iterations_by_outputBlob" ON "iterations" ("outputBlob") WHERE "outputBlob" IS NOT NULL;
CREATE INDEX "messages_by_contentBlob" ON "messages" ("contentBlob") WHERE "contentBlob" IS NOT NULL;
CREATE INDEX "tool_calls_by_argsJsonBlob" ON "tool_calls" ("argsJsonBlob") WHERE "argsJsonBlob" IS NOT NULL;
CREATE INDEX "tool_calls_by_resultBlob" ON "tool_calls" ("resultBlob") WHERE "resultBlob" IS NOT NULL;
CREATE INDEX "model_calls_by_requestBlob" ON "model_calls" ("requestBlob") WHERE "requestBlob" IS NOT NULL;
CREATE INDEX "model_calls_by_responseBlob" ON "model_calls" ("responseBlob") WHERE "responseBlob" IS NOT NULL;
CREATE INDEX "scores_by_explanationBlob" ON "scores" ("explanationBlob") WHERE "explanationBlob" IS NOT NULL;
CREATE INDEX "labels_by_noteBlob" ON "labels" ("noteBlob") WHERE "noteBlob" IS NOT NULL;
CREATE INDEX "evaluations_by_metadataJsonBlob" ON "evaluations" ("metadataJsonBlob") WHERE "metadataJsonBlob" IS NOT NULL;
CREATE INDEX "evaluator_definitions_by_configJsonBlob" ON "evaluator_definitions" ("configJsonBlob") WHERE "configJsonBlob" IS NOT NULL;
CREATE INDEX "dataset_examples_by_contentJsonBlob" ON "dataset_examples" ("contentJsonBlob") WHERE "contentJsonBlob" IS NOT NULL;
CREATE INDEX "recommendations_by_requestJsonBlob" ON "recommendations" ("requestJsonBlob") WHERE "requestJsonBlob" IS NOT NULL;
CREATE INDEX "recommendations_by_resultJsonBlob" ON "recommendations" ("resultJsonBlob") WHERE "resultJsonBlob" IS NOT NULL;
CREATE INDEX "log_events_by_messageBlob" ON "log_events" ("messageBlob") WHERE "messageBlob" IS NOT NULL;
