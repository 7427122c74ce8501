//! Constructors for models that a cloud platform hosts and serves in the wire format of the model's
//! vendor. Each constructor sets the base URL and the key header.

use crate::error::{Error, ErrorKind};
use crate::http::KeyHeader;
use crate::provider::wires::openai_chat::Dialect;
use crate::provider::{Anthropic, Gemini, OpenAiChat, OpenAiResponses};

impl OpenAiChat {
    /// Creates a provider for an Azure OpenAI deployment, using Azure's v1 API:
    /// `https://{resource}.openai.azure.com/openai/v1`.
    ///
    /// An API key is sent in the `api-key` header. A [token](crate::http::Credential::token) from
    /// Microsoft Entra needs the scope `https://ai.azure.com/.default`. Source:
    /// <https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle>.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the resource name cannot
    /// be used in a host name.
    ///
    /// ```
    /// use turnstream::provider::OpenAiChat;
    ///
    /// let model = OpenAiChat::azure("my-resource", "my-gpt-5")?.with_api_key("…");
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    pub fn azure(resource: &str, deployment: &str) -> Result<Self, Error> {
        let model = Self::new(deployment).with_dialect(Dialect::AZURE);
        model.with_base_url(azure_openai_base_url(resource, "openai/v1")?)
    }

    /// Creates a provider for an Azure OpenAI deployment, using Azure's older API, which is
    /// versioned by date:
    /// `https://{resource}.openai.azure.com/openai/deployments/{deployment}/chat/completions?api-version={version}`.
    ///
    /// Keys and tokens are sent as described for [`azure`](Self::azure), but a token needs the
    /// scope `https://cognitiveservices.azure.com/.default`. Source:
    /// <https://learn.microsoft.com/azure/ai-foundry/openai/reference>.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the resource name cannot
    /// be used in a host name. If the deployment name cannot be used in a path, this function
    /// succeeds, but each turn fails.
    pub fn azure_classic(resource: &str, deployment: &str, version: &str) -> Result<Self, Error> {
        let model = Self::new(deployment).with_dialect(Dialect::AZURE);
        let model = model.with_base_url(azure_openai_base_url(resource, "openai/deployments")?)?;
        Ok(model.with_path("/{model}/chat/completions").with_query("api-version", version))
    }

    /// Creates a provider for a model on Amazon Bedrock, using Bedrock's OpenAI-compatible
    /// endpoint: `https://bedrock-runtime.{region}.amazonaws.com/openai/v1`.
    ///
    /// The credential is a Bedrock API key (which AWS tools read from the
    /// `AWS_BEARER_TOKEN_BEDROCK` environment variable) or a
    /// [signer](crate::http::Credential::signer) for the `bedrock` service. Source:
    /// <https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html>.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the region cannot be used
    /// in a host name.
    pub fn bedrock(region: &str, model: &str) -> Result<Self, Error> {
        Self::new(model).with_base_url(bedrock_base_url(region)?)
    }

    /// Creates a provider for a model on Google Cloud's Vertex AI, using Vertex AI's
    /// OpenAI-compatible endpoint:
    /// `https://{location}-aiplatform.googleapis.com/v1/projects/{project}/locations/{location}/endpoints/openapi`.
    ///
    /// The model name starts with its publisher: `google/gemini-2.5-flash`. The credential is a
    /// [token](crate::http::Credential::token) with the scope
    /// `https://www.googleapis.com/auth/cloud-platform`. Source:
    /// <https://cloud.google.com/vertex-ai/generative-ai/docs/migrate/openai/overview>.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the project or the
    /// location cannot be used in a URL.
    pub fn vertex(project: &str, location: &str, model: &str) -> Result<Self, Error> {
        Self::new(model).with_base_url(vertex_base_url(project, location, "endpoints/openapi")?)
    }
}

impl OpenAiResponses {
    /// Creates a provider for an Azure OpenAI deployment; see [`OpenAiChat::azure`].
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the resource name cannot
    /// be used in a host name.
    pub fn azure(resource: &str, deployment: &str) -> Result<Self, Error> {
        let model = Self::new(deployment).with_key_header(AZURE_KEY_HEADER);
        model.with_base_url(azure_openai_base_url(resource, "openai/v1")?)
    }

    /// Creates a provider for a model on Amazon Bedrock; see [`OpenAiChat::bedrock`]. Source:
    /// <https://docs.aws.amazon.com/bedrock/latest/userguide/inference-responses-api.html>.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the region cannot be used
    /// in a host name.
    pub fn bedrock(region: &str, model: &str) -> Result<Self, Error> {
        Self::new(model).with_base_url(bedrock_base_url(region)?)
    }
}

impl Anthropic {
    /// Creates a provider for a Claude deployment in Microsoft Foundry:
    /// `https://{resource}.services.ai.azure.com/anthropic`.
    ///
    /// An API key is sent in the `api-key` header. A [token](crate::http::Credential::token) from
    /// Microsoft Entra needs the scope `https://ai.azure.com/.default`. Source:
    /// <https://platform.claude.com/docs/en/build-with-claude/claude-in-microsoft-foundry>.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the resource name cannot
    /// be used in a host name.
    pub fn azure(resource: &str, deployment: &str) -> Result<Self, Error> {
        let resource = ensure_host_label("resource", resource)?;
        let url = format!("https://{resource}.services.ai.azure.com/anthropic");
        Self::new(deployment).with_key_header(AZURE_KEY_HEADER).with_base_url(url)
    }

    /// Creates a provider for a Claude model on Amazon Bedrock, using Bedrock's
    /// Anthropic-compatible endpoint: `https://bedrock-mantle.{region}.api.aws/anthropic`.
    ///
    /// The credential is a Bedrock API key (which AWS tools read from the
    /// `AWS_BEARER_TOKEN_BEDROCK` environment variable), sent as a bearer token, or a
    /// [signer](crate::http::Credential::signer) for the `bedrock-mantle` service. Source:
    /// <https://docs.aws.amazon.com/bedrock/latest/userguide/bedrock-mantle.html>.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the region cannot be used
    /// in a host name.
    pub fn bedrock(region: &str, model: &str) -> Result<Self, Error> {
        let region = ensure_host_label("region", region)?;
        let url = format!("https://bedrock-mantle.{region}.api.aws/anthropic");
        Self::new(model).with_key_header(KeyHeader::Bearer).with_base_url(url)
    }

    /// Creates a provider for a Claude model on Google Cloud's Vertex AI. The base URL is
    /// `https://{location}-aiplatform.googleapis.com/v1/projects/{project}/locations/{location}/publishers/anthropic`.
    /// The location may also be `global`, `us` or `eu`.
    ///
    /// The model name is part of the URL, not of the body. The API version (as `anthropic_version`)
    /// and the names of [betas](Self::with_beta) are sent in the body instead of in headers. The
    /// credential is a [token](crate::http::Credential::token) with the scope
    /// `https://www.googleapis.com/auth/cloud-platform`. Source:
    /// <https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai>.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the project or the
    /// location cannot be used in a URL.
    pub fn vertex(project: &str, location: &str, model: &str) -> Result<Self, Error> {
        let model = Self::new(model).for_vertex();
        model.with_base_url(vertex_base_url(project, location, "publishers/anthropic")?)
    }
}

impl Gemini {
    /// Creates a provider for a Gemini model on Google Cloud's Vertex AI. The base URL is
    /// `https://{location}-aiplatform.googleapis.com/v1/projects/{project}/locations/{location}/publishers/google`.
    /// The location may also be `global`, `us` or `eu`.
    ///
    /// The credential is a [token](crate::http::Credential::token) with the scope
    /// `https://www.googleapis.com/auth/cloud-platform`.
    /// Source: <https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference>.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the project or the
    /// location cannot be used in a URL.
    pub fn vertex(project: &str, location: &str, model: &str) -> Result<Self, Error> {
        let path = "/models/{model}:streamGenerateContent?alt=sse";
        let model = Self::new(model).for_vertex().with_path(path);
        model.with_base_url(vertex_base_url(project, location, "publishers/google")?)
    }
}

/// The header in which Azure expects an API key, regardless of the wire format.
const AZURE_KEY_HEADER: KeyHeader = KeyHeader::Named("api-key");

fn azure_openai_base_url(resource: &str, path: &str) -> Result<String, Error> {
    let resource = ensure_host_label("resource", resource)?;
    Ok(format!("https://{resource}.openai.azure.com/{path}"))
}

fn bedrock_base_url(region: &str) -> Result<String, Error> {
    let region = ensure_host_label("region", region)?;
    Ok(format!("https://bedrock-runtime.{region}.amazonaws.com/openai/v1"))
}

fn vertex_base_url(project: &str, location: &str, path: &str) -> Result<String, Error> {
    let location = ensure_host_label("location", location)?;
    let host = match location {
        "global" => "aiplatform.googleapis.com".to_owned(),
        "us" | "eu" => format!("aiplatform.{location}.rep.googleapis.com"),
        region => format!("{region}-aiplatform.googleapis.com"),
    };
    // The name of an organization's project starts with the organization's domain:
    // `example.com:project`.
    let project = ensure_path_segment("project", project, |c| matches!(c, '-' | '.' | ':'))?;
    Ok(format!("https://{host}/v1/projects/{project}/locations/{location}/{path}"))
}

fn ensure_host_label<'a>(what: &'static str, value: &'a str) -> Result<&'a str, Error> {
    ensure_path_segment(what, value, |c| c == '-')
}

fn ensure_path_segment<'a>(
    what: &'static str,
    value: &'a str,
    also: impl Fn(char) -> bool,
) -> Result<&'a str, Error> {
    let is_name = !matches!(value, "" | "." | "..");
    match is_name && value.chars().all(|c| c.is_ascii_alphanumeric() || also(c)) {
        true => Ok(value),
        false => {
            let message = format!("the {what} `{value}` cannot be part of a URL");
            Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter(what))
        }
    }
}
