// Schemas of results: a JSON Schema, or a schema of a library such as zod that validates documents and gives them a type.

import { ResultMismatchError } from "./errors.js";

/** A problem of a value that a schema does not accept. */
export interface SchemaIssue {
  readonly message: string;
  /** The location of the problem: keys, or objects with a key. */
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** The members of a {@link StandardSchemaV1}. */
export interface StandardSchemaProps<Output> {
  readonly version: 1;
  /** The name of the library. */
  readonly vendor: string;
  /** Validates a value. */
  readonly validate: (value: unknown) => SchemaOutcome<Output> | Promise<SchemaOutcome<Output>>;
  /** The type of the values. This property is not set at run time. */
  readonly types?: { readonly output: Output } | undefined;
}

/** The result of a validation: the value, converted if the schema converts it, or its problems. */
export type SchemaOutcome<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

/** A schema as in https://standardschema.dev, such as one of zod. */
export interface StandardSchemaV1<Output = unknown> {
  readonly "~standard": StandardSchemaProps<Output>;
}

/** A standard schema that has a JSON Schema, such as one of zod 4.2 or newer. See {@link withJsonSchema} for others. */
export interface TypedSchema<Output = unknown> extends StandardSchemaV1<Output> {
  readonly "~standard": StandardSchemaProps<Output> & {
    readonly jsonSchema: {
      /** Returns the JSON Schema of the values that the schema accepts. */
      readonly input: (options: { readonly target: "draft-2020-12" }) => object;
    };
  };
}

/** A JSON Schema of draft 2020-12: a literal, or an object of a type such as `JSONSchema7`. Its values have no type. */
export type JsonSchema = (Readonly<Record<string, unknown>> | object) & { readonly "~standard"?: never };

/** The schema of a result. A `TypedSchema` also validates the result in this program and gives it its type. */
export type Schema<T = unknown> = TypedSchema<T> | JsonSchema;

/** Adds a JSON Schema to a schema of a library without JSON Schemas. */
export function withJsonSchema<T>(schema: StandardSchemaV1<T>, jsonSchema: object): TypedSchema<T> {
  return { "~standard": { ...schema["~standard"], jsonSchema: { input: () => jsonSchema } } };
}

/** @internal Returns the schema as the text that the API expects. */
export function schemaText(schema: Schema): string {
  const standard: Partial<TypedSchema["~standard"]> | undefined = schema["~standard"];
  if (!standard) return JSON.stringify(schema);
  if (standard.jsonSchema) return JSON.stringify(standard.jsonSchema.input({ target: "draft-2020-12" }));
  throw new TypeError(`the schema of ${standard.vendor} has no JSON Schema; add it: withJsonSchema(schema, jsonSchema)`);
}

/** @internal Returns the result of a thread as a value of the schema's type. */
export async function validate<T>(schema: Schema<T> | undefined, value: unknown, threadId: string): Promise<T> {
  const standard = schema?.["~standard"];
  // Without a library's schema, T is unknown.
  if (!standard) return value as T;
  const outcome = await standard.validate(value);
  if (outcome.issues) throw new ResultMismatchError(threadId, value, outcome.issues);
  return outcome.value;
}
