//! A certificate as the dictionary that `ssl.SSLSocket.getpeercert` returns.

use std::net::{Ipv4Addr, Ipv6Addr};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use x509_parser::prelude::{
    ASN1Time, AttributeTypeAndValue, DistributionPointName, FromDer as _, GeneralName,
    ParsedExtension, X509Certificate, X509Name,
};

type Item<'py> = Bound<'py, PyAny>;

/// Describes a certificate, DER.
#[pyfunction]
pub(crate) fn describe_certificate<'py>(
    py: Python<'py>,
    der: &[u8],
) -> PyResult<Bound<'py, PyDict>> {
    let (_, certificate) = X509Certificate::from_der(der)
        .map_err(|error| PyValueError::new_err(format!("not a certificate: {error}")))?;
    let validity = certificate.validity();
    let dict = PyDict::new(py);
    dict.set_item("subject", name(py, certificate.subject())?)?;
    dict.set_item("issuer", name(py, certificate.issuer())?)?;
    dict.set_item("version", certificate.version().0 + 1)?;
    dict.set_item("serialNumber", serial_number(certificate.raw_serial()))?;
    dict.set_item("notBefore", time(validity.not_before))?;
    dict.set_item("notAfter", time(validity.not_after))?;
    if let Ok(Some(names)) = certificate.subject_alternative_name() {
        let names = names.value.general_names.iter();
        let names = names
            .map(|one| general_name(py, one))
            .collect::<PyResult<Vec<_>>>()?;
        dict.set_item("subjectAltName", PyTuple::new(py, names)?)?;
    }
    for (key, places) in places(&certificate) {
        if !places.is_empty() {
            dict.set_item(key, PyTuple::new(py, places)?)?;
        }
    }
    Ok(dict)
}

/// A tuple of the name's parts; a part is a tuple of pairs, of one as a rule.
fn name<'py>(py: Python<'py>, name: &X509Name<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let parts = name.iter_rdn().map(|part| {
        let pairs = part
            .iter()
            .map(|pair| (attribute(pair), text(pair)).into_pyobject(py));
        PyTuple::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
    });
    PyTuple::new(py, parts.collect::<PyResult<Vec<_>>>()?)
}

/// The attribute's name in OpenSSL, or its dotted number.
fn attribute(pair: &AttributeTypeAndValue<'_>) -> String {
    let number = pair.attr_type().to_id_string();
    let known = ATTRIBUTES.iter().find(|(one, _)| *one == number);
    known.map_or(number, |(_, name)| (*name).to_owned())
}

const ATTRIBUTES: [(&str, &str); 22] = [
    ("2.5.4.3", "commonName"),
    ("2.5.4.4", "surname"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "countryName"),
    ("2.5.4.7", "localityName"),
    ("2.5.4.8", "stateOrProvinceName"),
    ("2.5.4.9", "streetAddress"),
    ("2.5.4.10", "organizationName"),
    ("2.5.4.11", "organizationalUnitName"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "givenName"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.97", "organizationIdentifier"),
    ("0.9.2342.19200300.100.1.1", "userId"),
    ("0.9.2342.19200300.100.1.25", "domainComponent"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

fn text(pair: &AttributeTypeAndValue<'_>) -> String {
    match pair.as_str() {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(pair.as_slice()).into_owned(),
    }
}

fn serial_number(bytes: &[u8]) -> String {
    let magnitude = match bytes {
        [0, rest @ ..] if !rest.is_empty() => rest,
        bytes => bytes,
    };
    magnitude.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// `Nov  2 11:52:12 2026 GMT`
fn time(time: ASN1Time) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let time = time.to_datetime();
    let month = MONTHS.get(usize::from(u8::from(time.month())) - 1).copied();
    format!(
        "{} {:2} {:02}:{:02}:{:02} {} GMT",
        month.unwrap_or_default(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.year()
    )
}

fn general_name<'py>(py: Python<'py>, general: &GeneralName<'_>) -> PyResult<Item<'py>> {
    let (kind, value): (&str, Item<'py>) = match general {
        GeneralName::DNSName(name) => ("DNS", PyString::new(py, name).into_any()),
        GeneralName::RFC822Name(name) => ("email", PyString::new(py, name).into_any()),
        GeneralName::URI(uri) => ("URI", PyString::new(py, uri).into_any()),
        GeneralName::DirectoryName(directory) => ("DirName", name(py, directory)?.into_any()),
        GeneralName::RegisteredID(oid) => (
            "Registered ID",
            PyString::new(py, &oid.to_id_string()).into_any(),
        ),
        GeneralName::IPAddress(bytes) => {
            ("IP Address", PyString::new(py, &address(bytes)).into_any())
        }
        _ => ("othername", PyString::new(py, "<unsupported>").into_any()),
    };
    Ok((kind, value).into_pyobject(py)?.into_any())
}

/// An address as OpenSSL writes it: groups of IPv6 are neither shortened nor in lower case.
fn address(bytes: &[u8]) -> String {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Ipv4Addr::from(bytes).to_string();
    }
    let Ok(bytes) = <[u8; 16]>::try_from(bytes) else {
        return "<invalid>".to_owned();
    };
    let groups = Ipv6Addr::from(bytes).segments();
    groups.map(|group| format!("{group:X}")).join(":")
}

/// URLs of the issuer: OCSP responders, certificates, revocation lists.
fn places(certificate: &X509Certificate<'_>) -> [(&'static str, Vec<String>); 3] {
    let (mut ocsp, mut issuers, mut lists) = (Vec::new(), Vec::new(), Vec::new());
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::AuthorityInfoAccess(access) => {
                for description in &access.accessdescs {
                    let GeneralName::URI(uri) = &description.access_location else {
                        continue;
                    };
                    match description.access_method.to_id_string().as_str() {
                        "1.3.6.1.5.5.7.48.1" => ocsp.push((*uri).to_owned()),
                        "1.3.6.1.5.5.7.48.2" => issuers.push((*uri).to_owned()),
                        _ => {}
                    }
                }
            }
            ParsedExtension::CRLDistributionPoints(points) => {
                for point in &points.points {
                    if let Some(DistributionPointName::FullName(names)) = &point.distribution_point
                    {
                        lists.extend(names.iter().filter_map(|name| match name {
                            GeneralName::URI(uri) => Some((*uri).to_owned()),
                            _ => None,
                        }));
                    }
                }
            }
            _ => {}
        }
    }
    [
        ("OCSP", ocsp),
        ("caIssuers", issuers),
        ("crlDistributionPoints", lists),
    ]
}
